raise "something broke"
