import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--n", type=int, required=True)
parser.parse_args()
