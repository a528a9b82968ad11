"""``ccpipe check``: the state of the pipe, for Nagios, Icinga and other monitors."""
