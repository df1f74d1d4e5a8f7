IO.write(File.read!(__ENV__.file))
