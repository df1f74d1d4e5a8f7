import time, datetime
print(time.tzname, time.timezone, time.localtime(0)[:5], datetime.datetime.fromtimestamp(0).hour)
