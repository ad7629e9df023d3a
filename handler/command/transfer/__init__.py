# SPDX-License-Identifier: Apache-2.0
"""Shard sets on their way into S3 and out of it: `quickthaw push` and `quickthaw pull`."""
