"""An S3 service of one's own for tests, as a process so that workers and killed drivers can reach it too."""
import contextlib
import os
import subprocess
import sys

SERVE = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
server.stop()
"""


@contextlib.contextmanager
def service():
    """Runs the service with a bucket called shelf; gives the environment variables that lead to it."""
    server = subprocess.Popen([sys.executable, "-c", SERVE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        url = f"http://127.0.0.1:{int(server.stdout.readline())}"
        where = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "us-east-1", "AWS_REGION": "us-east-1",
                 "AWS_ENDPOINT_URL": url, "AWS_EC2_METADATA_DISABLED": "true"}
        saved = dict(os.environ)
        os.environ.update(where)
        try:
            import boto3

            boto3.client("s3", endpoint_url=url).create_bucket(Bucket="shelf")
            yield where
        finally:
            os.environ.clear()
            os.environ.update(saved)
    finally:
        server.stdin.close()
        server.stdout.close()
        server.wait(timeout=30)


def keys(prefix):
    """The keys in the bucket that begin so, sorted."""
    import boto3

    pages = boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"]).get_paginator("list_objects_v2").paginate(Bucket="shelf", Prefix=prefix)
    return sorted(entry["Key"] for page in pages for entry in page.get("Contents", []))
