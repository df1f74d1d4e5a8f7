import csv, io
out = io.StringIO()
csv.writer(out).writerows([["a", 'b"c'], [1, "x,y"]])
print(repr(out.getvalue()), list(csv.DictReader(io.StringIO("k,v\n1,2\n"))))
