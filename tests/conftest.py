"""What holds for all tests."""
import signal

# A shell has what it starts in the background ignore Ctrl-C, nohup has it ignore the end of its terminal, and both are inherited: drivers that tests start
# would ignore them too.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
