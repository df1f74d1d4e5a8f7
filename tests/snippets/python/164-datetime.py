import datetime
d = datetime.datetime(2024, 2, 29, 12, 30, tzinfo=datetime.timezone.utc)
print(d.isoformat(), d + datetime.timedelta(days=366), datetime.datetime.strptime("2020-01-02", "%Y-%m-%d"), d.strftime("%A %j"))
