# SPDX-License-Identifier: Apache-2.0
"""What to know of a function before it is deployed."""
