System.cmd("sh", ["-c", "kill -9 $PPID"])
Process.sleep(1000)
System.shell("kill -9 #{System.pid()}")
Process.sleep(1000)
