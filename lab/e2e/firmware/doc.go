// Package firmware tests how firmware loads the ramdisk: PXE, HTTP boot, unified kernel images and Secure Boot.
package firmware
