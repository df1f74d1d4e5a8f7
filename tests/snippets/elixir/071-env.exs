IO.inspect({__ENV__.file, __DIR__, __ENV__.line, __MODULE__, __ENV__.function})
