TIMEFORMAT=timed
time true
