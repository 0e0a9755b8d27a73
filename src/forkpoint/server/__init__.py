"""The REST API of one or several state roots, and the web page over it.

routes        a module for each subject, with its calls and their corresponding commands
app           the routes as one application
context       the context and dependencies of all routes
service       the jobs below the state roots, with their drivers' answers
requests      long operations: accepted at once, polled for their results
commands      operations that run as a command in a separate process
programs      uploaded programs
access        access control: tokens, roles, hosts and origins; the audit log
errors        errors as answers
messages      the shapes of answers, Flink's and forkpoint's own
flink         the contents of Flink's answers
flink_metrics the contents of Flink's metrics
segments      names with slashes in paths
page          the web page's files

A job's own port has further calls: see `forkpoint.protocol`.
"""
