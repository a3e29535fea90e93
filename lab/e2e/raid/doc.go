// Package raid tests the steps of software RAID, and deployment and erase of its arrays.
package raid
