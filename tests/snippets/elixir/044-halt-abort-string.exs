System.stop(5)
Process.sleep(2000)
