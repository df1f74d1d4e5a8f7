Code.eval_string("1 +")
