import sys
frame = sys._getframe()
print(frame.f_back, frame.f_code.co_name, frame.f_code.co_filename, frame.f_lineno)
