"""The REST API of one or several state roots, and the web page over it.

routes        a module for each subject: the calls, and which command each is the counterpart of
app           the routes as one application
context       what the routes share
service       the jobs below the state roots, with what their drivers say
requests      operations that take a while: accepted first, answered later
commands      those that run as a command, in a process of its own
programs      programs that were uploaded
access        who may call: tokens, roles, hosts and origins; the audit log
errors        errors as answers
messages      the shapes of answers, Flink's and forkpoint's own
flink         what Flink's answers are made of
flink_metrics …and Flink's metrics
segments      names with a slash in paths
page          the web page's files

A job's own port has some calls more, which are not here: see `forkpoint.protocol`.
"""
