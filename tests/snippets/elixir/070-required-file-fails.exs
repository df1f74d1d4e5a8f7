File.write!("/workspace/broken.exs", "defmodule B do\n  def f, do: raise(\"inside\")\nend\nB.f()\n")
Code.require_file("/workspace/broken.exs")
