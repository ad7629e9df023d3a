#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Run by LocalStack when it is ready: puts the function's zip and the shards into a bucket, and makes the stack.
set -euo pipefail
: "${QUICKTHAW_FILES:=/opt/quickthaw}" "${QUICKTHAW_RUNTIME:=python3.13}"
bucket=quickthaw

stack() {
  awslocal cloudformation describe-stacks --stack-name quickthaw --query "Stacks[0].$1" --output text
}

awslocal s3 mb "s3://$bucket" >/dev/null
awslocal s3 cp --only-show-errors "$QUICKTHAW_FILES/function.zip" "s3://$bucket/function.zip"
awslocal s3 cp --only-show-errors --recursive "$QUICKTHAW_FILES/shards" "s3://$bucket/shards"
awslocal cloudformation create-stack --stack-name quickthaw --template-body "file://$QUICKTHAW_FILES/stack.yaml" \
  --capabilities CAPABILITY_IAM \
  --parameters "ParameterKey=Bucket,ParameterValue=$bucket" "ParameterKey=Runtime,ParameterValue=$QUICKTHAW_RUNTIME" >/dev/null
while status=$(stack StackStatus) && [ "$status" = CREATE_IN_PROGRESS ]; do
  sleep 0.5
done
if [ "$status" != CREATE_COMPLETE ]; then
  echo "the stack is $status: $(stack StackStatusReason)" >&2
  exit 1
fi
