IO.inspect({String.length("héllo"), String.reverse("äb"), String.split("a,b;c", [",", ";"]), String.graphemes("👩‍👩‍👧x"), byte_size("é")})
