IO.inspect({System.argv(), System.get_env("HOME"), File.cwd!(), System.no_halt()})
