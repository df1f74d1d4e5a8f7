:init.stop(6)
Process.sleep(2000)
