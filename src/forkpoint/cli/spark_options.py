"""The options for Spark and its executors: spark-submit's and forkpoint's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import click

_SETTINGS = {
    "master": "spark.master",
    "py_files": "spark.submit.pyFiles",
    "files": "spark.files",
    "archives": "spark.archives",
    "deploy_mode": "spark.submit.deployMode",
}


def split_settings(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> dict[str, str]:
    """Parse --conf into values by setting."""
    found: dict[str, str] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name.startswith("spark."):
            raise click.BadParameter(f"{each!r} is not of the form {param.metavar}")
        found[name] = value
    return found


def spark_options(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options for Spark to a command."""
    for option in (
        click.option(
            "--pass-env",
            metavar="NAME,PREFIX*",
            multiple=True,
            callback=lambda ctx, param, given: tuple(name for part in given for name in part.split(",") if name),
            help="Environment variables that executors get from the driver, such as 'AWS_*'; repeatable.",
        ),
        click.option("--ship-env", is_flag=True, help="Send the driver's virtual environment to the executors."),
        click.option("--archives", metavar="A,B", help="Archives that Spark unpacks in the executors' working directories."),
        click.option("--files", metavar="A,B", help="Files that Spark copies to the executors' working directories."),
        click.option("--py-files", metavar="A,B", help=".py, .zip and .egg files for the executors' import path."),
        click.option(
            "--conf", metavar="spark.NAME=VALUE", multiple=True, callback=split_settings, help="A Spark setting; repeatable."
        ),
        click.option("--deploy-mode", type=click.Choice(["client", "cluster"]), hidden=True),  # only for the error message
        click.option("--master", metavar="URL", help="Spark's master. [env: SPARK_MASTER; default: local[*]]"),
    ):
        command = option(command)
    return command


def spark_settings(options: Mapping[str, Any]) -> dict[str, str]:
    """The Spark settings given by a command's options."""
    named = {setting: options.get(option) for option, setting in _SETTINGS.items()}
    return {**options.get("conf", {}), **{name: value for name, value in named.items() if value is not None}}
