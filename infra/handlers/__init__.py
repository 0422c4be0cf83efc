"""What runs in the account between executions: Lambda functions that answer events. Each needs boto3 alone."""
