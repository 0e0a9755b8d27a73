"""The Spark engine. `session` finds or builds the SparkSession, `executor` runs an epoch as a Spark job, `streams` turns
streaming DataFrames into epochs, `frames` maps types between forkpoint and Spark. `import forkpoint` imports nothing from here.
"""
