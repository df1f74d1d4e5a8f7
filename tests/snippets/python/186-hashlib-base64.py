import base64, hashlib, hmac, zlib
print(hashlib.sha256(b"a").hexdigest()[:16], base64.b64encode(b"xyz"), hmac.new(b"k", b"m", "md5").hexdigest()[:8], zlib.crc32(b"a"))
