IO.inspect(:gen_tcp.connect({192, 0, 2, 1}, 80, [], 500))
