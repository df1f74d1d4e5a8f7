System.halt(300)
