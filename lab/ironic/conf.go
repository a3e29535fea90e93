//go:build linux

package ironic

import (
	"strings"

	"ironroot/lab/qemu"
)

// configuration returns ironic.conf. Its paths are those within the chroot.
func configuration(o Options) string {
	text := strings.NewReplacer(
		"@IP@", address, "@API@", apiURL, "@FILES@", filesURL, "@DIR@", inside, "@GRUB@", grubConfig, "@HINTS@",
		qemu.KernelHints, "@PARAMS@", o.KernelParams,
		"@INSPECT@", inspectInterface(o.Suite),
		"@LOADERS@", "pxelinux.0:"+pxeLoaderBIOS+",ldlinux.c32:"+pxeModuleBIOS+",bootx64.efi:"+pxeLoaderUEFI,
	).Replace(base)
	return text + "\n" + o.Config
}

// inspectInterface returns the inspect interface of nodes: the ramdisk's, or none where Ironic leaves the inspection by
// a ramdisk to ironic-inspector.
func inspectInterface(suite string) string {
	if suite == Bookworm {
		return "no-inspect"
	}
	return "agent"
}

// base configures a standalone Ironic in one process.
const base = `
[DEFAULT]
auth_strategy = noauth
rpc_transport = none
host = conductor
my_ip = @IP@
debug = true
log_file = @DIR@/log/ironic.log
state_path = @DIR@/state
tempdir = @DIR@/tmp
pybasedir = /usr/lib/python3/dist-packages/ironic
grub_config_path = @GRUB@
enabled_hardware_types = redfish
enabled_bios_interfaces = no-bios
enabled_boot_interfaces = ipxe,pxe,redfish-virtual-media
enabled_console_interfaces = no-console
enabled_deploy_interfaces = direct
enabled_firmware_interfaces = no-firmware
enabled_inspect_interfaces = @INSPECT@
enabled_management_interfaces = redfish
enabled_network_interfaces = noop
default_network_interface = noop
enabled_power_interfaces = redfish
enabled_raid_interfaces = agent,no-raid
enabled_rescue_interfaces = agent,no-rescue
enabled_storage_interfaces = noop
enabled_vendor_interfaces = no-vendor

[api]
host_ip = @IP@
port = 6385
api_workers = 1

[service_catalog]
auth_type = none
endpoint_override = @API@

[database]
connection = sqlite:///@DIR@/ironic.sqlite

[conductor]
automated_clean = true
deploy_callback_timeout = 1800
clean_callback_timeout = 1800
inspect_wait_timeout = 1800
sync_power_state_interval = 30
# Fewer than 40 leave no worker for the reserved pool, and the conductor does not start.
workers_pool_size = 100
bootloader = @FILES@/esp.img
disable_zstandard_decompression = true

[deploy]
http_root = @DIR@/http
http_url = @FILES@
default_boot_mode = uefi
# Overwriting whole virtual disks would prove little and take long.
erase_devices_priority = 0
erase_devices_metadata_priority = 10

[agent]
deploy_logs_collect = always
deploy_logs_storage_backend = local
deploy_logs_local_path = @DIR@/deploylogs
certificates_path = @DIR@/certs
# The time limits are those of the defaults; the intervals are shorter.
command_wait_interval = 1
command_wait_attempts = 600
post_deploy_get_power_state_retry_interval = 1
post_deploy_get_power_state_retries = 30
require_tls = true
image_download_source = http
# The default of later releases.
enable_bios_bootloader_install = false

[dhcp]
dhcp_provider = none

[pxe]
tftp_root = @DIR@/tftp
tftp_master_path = @DIR@/tftp-master
tftp_server = @IP@
loader_file_paths = @LOADERS@
images_path = @DIR@/images
instance_master_path = @DIR@/master
kernel_append_params = nofb nomodeset console=ttyS0,115200n8 @HINTS@ @PARAMS@

[redfish]
use_swift = false
kernel_append_params = nofb nomodeset console=ttyS0,115200n8 @HINTS@ @PARAMS@

[inventory]
data_backend = database

[inspector]
power_off = true

[oslo_concurrency]
lock_path = @DIR@/locks

[oslo_policy]
enforce_scope = false
enforce_new_defaults = false

[glance]
auth_type = none

[neutron]
auth_type = none

[swift]
auth_type = none

[cinder]
auth_type = none

[nova]
send_power_notifications = false

[sensor_data]
send_sensor_data = false
`
