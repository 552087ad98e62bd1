"""Files and services that a run's reports are written to."""
from raygo.tune.logger.csv import CSVLoggerCallback
from raygo.tune.logger.json import JsonLoggerCallback
from raygo.tune.logger.logger import LoggerCallback, pretty_print
from raygo.tune.logger.tensorboardx import TBXLoggerCallback

__all__ = ["CSVLoggerCallback", "JsonLoggerCallback", "LoggerCallback", "TBXLoggerCallback", "pretty_print"]
