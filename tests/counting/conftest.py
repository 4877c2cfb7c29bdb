"""Tests of the folders below import the helpers of this one."""
