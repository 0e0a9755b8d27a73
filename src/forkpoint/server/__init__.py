"""The REST API of one or several state roots, and the web page over it.

service       the jobs below the state roots, with what their drivers say
requests      operations that take a while: accepted first, answered later
access        who may call: tokens, roles, hosts and origins; the audit log
errors        errors as answers
messages      Flink's shapes of answers
flink         …and what they are made of
jobs, savepoints, programs, states, system    the routes
app           all of it as one application
page          the web page's files
"""
