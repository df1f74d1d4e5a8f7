import sqlite3
db = sqlite3.connect(":memory:")
db.execute("create table t (a, b)")
db.executemany("insert into t values (?, ?)", [(1, "x"), (2, "y")])
print(db.execute("select * from t order by a desc").fetchall())
db.execute("select * from missing")
