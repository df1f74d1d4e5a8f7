d = ~D[2024-02-29]
IO.inspect({Date.add(d, 366), Date.day_of_week(d), DateTime.from_unix!(0), NaiveDateTime.diff(~N[2024-01-02 00:00:00], ~N[2024-01-01 00:00:00]), Calendar.strftime(d, "%d %B")})
