package config

import (
	"time"
)

// Config is the agent's configuration. Sizes are in bytes. A Config returned by Live is shared and must not be
// changed.
//
// Each field is an option; a field with the tag group is a struct with the options of a group. The field's name is the
// option's, without underscores. Declare an option next to the related ones: the documents and the command's help
// list the options in this order. These are the tags, of which file, unsigned and help are required:
//
//	file     name in files; --NAME is the flag, and OS_<GROUP>__<NAME> the environment variable
//	kernel   kernel parameter
//	default  default, as an operator writes it; without it, the zero value
//	type     port, or float for times in fractions of a second; otherwise the field's type decides
//	unit     unit in which an operator writes the value: s for a time.Duration, MiB for bytes; others are only shown
//	min      smallest number
//	max      largest number
//	choices  permitted texts, separated by commas
//	check    form of the text: urls, host, hostport, syslog, version (see parseString), or file for the path of a file
//	         to read
//	alias    former names, GROUP.NAME, separated by commas
//	secret   "true": the value is never printed
//	source   "flag": can be set by the flag only
//	unsigned sources outside of a signed image that can set the option nevertheless: "media" (virtual media), "mdns"
//	         (answers of multicast DNS), both separated by a comma, or "none"; see Source before choosing one
//	help     one line that says what the option does
//	unused   reason why the option has no effect
//	heading  heading of the command's help, for this option and those that follow
type Config struct {
	APIURL          string `file:"api_url" kernel:"ipa-api-url" check:"urls" unsigned:"media" heading:"Ironic" help:"URL of the Ironic API, or several separated by commas; mdns discovers it by multicast DNS"`
	GlobalRequestID string `file:"global_request_id" kernel:"ipa-global-request-id" unsigned:"media" help:"request ID sent with every request to Ironic, in the form req-UUID"`

	ListenHost              string        `file:"listen_host" kernel:"ipa-listen-host" check:"host" default:"::" unsigned:"none" heading:"The agent's API" help:"IP address or name on which the agent's API listens; the default is 0.0.0.0 if the kernel lacks IPv6"`
	ListenPort              int           `file:"listen_port" kernel:"ipa-listen-port" type:"port" default:"9999" unsigned:"none" help:"port on which the agent's API listens"`
	ListenTLS               bool          `file:"listen_tls" default:"false" unsigned:"none" help:"serve the API with the certificate of tls_cert_file and tls_key_file"`
	TLSCertFile             string        `file:"tls_cert_file" alias:"ssl.cert_file" check:"file" unsigned:"none" help:"file with the certificate of the API, PEM"`
	TLSKeyFile              string        `file:"tls_key_file" alias:"ssl.key_file" check:"file" unsigned:"none" help:"file with the private key of the API, PEM"`
	EnableAutoTLS           bool          `file:"enable_auto_tls" default:"true" unsigned:"none" help:"generate a certificate for the API and send it to Ironic"`
	AutoTLSAllowedClockSkew time.Duration `file:"auto_tls_allowed_clock_skew" unit:"s" min:"0" default:"3600" unsigned:"none" help:"how long before the present the generated certificate becomes valid"`
	AutoTLSLifetime         time.Duration `file:"auto_tls_lifetime" kernel:"ipa-auto-tls-lifetime" unit:"s" min:"3600" default:"2592000" unsigned:"none" help:"time until the generated certificate expires; it is never renewed, because Ironic rejects an agent whose certificate changes"`
	TLSMinVersion           string        `file:"tls_min_version" kernel:"ipa-tls-min-version" choices:"1.2,1.3" default:"1.2" unsigned:"none" help:"oldest TLS version that is accepted, as server and as client"`
	TLSCipherSuites         string        `file:"tls_cipher_suites" kernel:"ipa-tls-cipher-suites" unsigned:"none" help:"cipher suites for TLS 1.2 as an OpenSSL cipher list; groups such as HIGH:!aNULL select the supported suites"`
	TLSCertificateCurve     string        `file:"tls_certificate_curve" kernel:"ipa-tls-certificate-curve" choices:"p256,p384,p521" default:"p384" unsigned:"none" help:"curve of the generated certificate's key"`

	AdvertiseHost     string        `file:"advertise_host" kernel:"ipa-advertise-host" check:"host" unsigned:"none" heading:"Address Ironic calls back" help:"name or IP address in the callback URL sent to Ironic; not set, the source address of the route to Ironic"`
	AdvertisePort     int           `file:"advertise_port" kernel:"ipa-advertise-port" type:"port" default:"9999" unsigned:"none" help:"port of the callback URL sent to Ironic"`
	AdvertiseProtocol string        `file:"advertise_protocol" kernel:"ipa-advertise-protocol" choices:"http,https" default:"http" unsigned:"none" help:"protocol of the callback URL sent to Ironic"`
	IPLookupAttempts  int           `file:"ip_lookup_attempts" kernel:"ipa-ip-lookup-attempts" min:"1" default:"6" unsigned:"media" help:"number of attempts to find the callback address"`
	IPLookupSleep     time.Duration `file:"ip_lookup_sleep" kernel:"ipa-ip-lookup-timeout" unit:"s" min:"0" default:"10" unsigned:"media" help:"pause between attempts to find the callback address"`
	NetworkInterface  string        `file:"network_interface" kernel:"ipa-network-interface" unsigned:"none" help:"interface whose address is the callback address"`

	LookupTimeout  time.Duration `file:"lookup_timeout" kernel:"ipa-lookup-timeout" unit:"s" min:"0" default:"600" unsigned:"media" heading:"Lookup" help:"time limit of a lookup, retries included"`
	LookupInterval time.Duration `file:"lookup_interval" kernel:"ipa-lookup-interval" unit:"s" min:"0" default:"1" unsigned:"media" help:"first pause between attempts of a lookup"`

	LLDPTimeout                 time.Duration `file:"lldp_timeout" kernel:"ipa-lldp-timeout" type:"float" unit:"s" default:"30.0" unsigned:"media,mdns" heading:"Inspection and hardware" help:"time to wait for LLDP frames"`
	CollectLLDP                 bool          `file:"collect_lldp" kernel:"ipa-collect-lldp" default:"false" unsigned:"media,mdns" help:"include LLDP in the inventory; disables the LLDP agents of Intel network cards until the instance starts"`
	InspectionCallbackURL       string        `file:"inspection_callback_url" kernel:"ipa-inspection-callback-url" unsigned:"media,mdns" help:"URL to which inspection data is posted, or several separated by commas; mdns discovers it by multicast DNS"`
	InspectionCollectors        string        `file:"inspection_collectors" kernel:"ipa-inspection-collectors" unsigned:"media,mdns" help:"names of the inspection collectors, separated by commas; not set, default,logs"`
	InspectionDHCPWaitTimeout   time.Duration `file:"inspection_dhcp_wait_timeout" kernel:"ipa-inspection-dhcp-wait-timeout" unit:"s" min:"0" default:"60" unsigned:"media,mdns" help:"time that inspection waits for addresses; 0 does not wait"`
	InspectionDHCPAllInterfaces bool          `file:"inspection_dhcp_all_interfaces" kernel:"ipa-inspection-dhcp-all-interfaces" default:"false" unsigned:"media,mdns" help:"wait for an address on every interface, not only on the boot interface"`
	HardwareInitializationDelay time.Duration `file:"hardware_initialization_delay" kernel:"ipa-hardware-initialization-delay" unit:"s" min:"0" default:"0" unsigned:"media" help:"pause after the hardware managers are initialized"`
	EraseManagers               []string      `file:"erase_managers" kernel:"ipa-erase-managers" unsigned:"none" help:"names of custom hardware managers whose steps may replace built-in steps named erase_*, separated by commas"`
	SelfTest                    bool          `file:"selftest" kernel:"ipa-selftest" default:"false" unsigned:"none" help:"write a report of the machine to the log at the start: drivers, links, disks and how they would be erased, problems"`
	DiskWaitAttempts            int           `file:"disk_wait_attempts" kernel:"ipa-disk-wait-attempts" min:"0" default:"10" unsigned:"none" help:"number of times to check for a disk, disk_wait_delay seconds apart; 0 does not wait"`
	DiskWaitDelay               time.Duration `file:"disk_wait_delay" kernel:"ipa-disk-wait-delay" unit:"s" min:"0" default:"3" unsigned:"none" help:"pause between two checks for a disk"`

	Insecure bool   `file:"insecure" kernel:"ipa-insecure" default:"false" unsigned:"none" heading:"TLS towards Ironic and image servers" help:"do not verify certificates of Ironic and of image servers"`
	CAFile   string `file:"cafile" check:"file" unsigned:"none" help:"file with the trusted certificate authorities, instead of the system's, PEM"`
	CertFile string `file:"certfile" check:"file" unsigned:"none" help:"file with the client certificate, PEM; requires keyfile"`
	KeyFile  string `file:"keyfile" check:"file" unsigned:"none" help:"file with the key of the client certificate, PEM"`

	IntrospectionDaemon             bool          `file:"introspection_daemon" default:"false" unsigned:"none" heading:"Collecting program" help:"collect and post inspection data repeatedly (ironroot collect only)"`
	IntrospectionDaemonPostInterval time.Duration `file:"introspection_daemon_post_interval" unit:"s" default:"300" unsigned:"none" help:"pause between two collections"`

	NTPServer               string `file:"ntp_server" kernel:"ipa-ntp-server" check:"hostport" unsigned:"none" heading:"Clock" help:"time server, HOST or HOST:PORT, for the system clock and the hardware clock; not set, the servers from DHCP set the system clock if its time is implausible"`
	FailIfClockNotSet       bool   `file:"fail_if_clock_not_set" default:"false" unsigned:"none" help:"fail at start if the clock cannot be set"`
	AgentToken              string `file:"agent_token" kernel:"ipa-agent-token" secret:"true" unsigned:"media" heading:"Token" help:"agent token that Ironic knows already"`
	ImageServerUser         string `file:"image_server_user" unsigned:"none" heading:"Images" help:"user name for the image server"`
	ImageServerPassword     string `file:"image_server_password" secret:"true" unsigned:"none" help:"password for the image server"`
	ImageServerAuthStrategy string `file:"image_server_auth_strategy" choices:"noauth,http_basic" default:"noauth" unsigned:"none" help:"authentication method for the image server"`

	ImageDownloadConnectionTimeout       time.Duration `file:"image_download_connection_timeout" kernel:"ipa-image-download-connection-timeout" unit:"s" min:"1" default:"60" unsigned:"media" help:"time limit for a connect, and for a pause in the data, of an image or config drive download"`
	ImageDownloadConnectionRetries       int           `file:"image_download_connection_retries" kernel:"ipa-image-download-connection-retries" min:"0" default:"9" unsigned:"media" help:"number of retries of an image download"`
	ImageDownloadConnectionRetryInterval time.Duration `file:"image_download_connection_retry_interval" kernel:"ipa-image-download-connection-retry-interval" unit:"s" min:"0" default:"10" unsigned:"media" help:"pause between retries of an image download"`
	ImageDownloadMaxDuration             time.Duration `file:"image_download_max_duration" kernel:"ipa-image-download-max-duration" unit:"s" min:"0" default:"0" unsigned:"media" help:"time limit of the download of an image, a config drive or an injected file, retries included; 0 sets none"`
	ImageDownloadMinRate                 int64         `file:"image_download_min_rate" kernel:"ipa-image-download-min-rate" unit:"B/s" min:"0" default:"1024" unsigned:"media" help:"minimum rate of an image or config drive download, averaged over two minutes; 0 accepts any rate"`

	IronicAPIVersion            string        `file:"ironic_api_version" kernel:"ipa-ironic-api-version" check:"version" unsigned:"none" heading:"Protocol, deployment, cleaning" help:"version of Ironic's API to use; not set, it is requested from Ironic"`
	DriverName                  string        `file:"driver_name" kernel:"ipa-driver-name" unsigned:"none" help:"driver of the node in an Ironic with an API older than 1.22, which conductors of that age pass; not set, such an Ironic is not supported; with it, commands of such an Ironic need no token"`
	EnableVLANInterfaces        string        `file:"enable_vlan_interfaces" kernel:"ipa-enable-vlan-interfaces" unsigned:"none" help:"VLAN interfaces to create, separated by commas: INTERFACE.ID, INTERFACE for all VLANs that its switch announces by LLDP, or all; INTERFACE is a name or a MAC address"`
	IgnoreBootloaderFailure     bool          `file:"ignore_bootloader_failure" kernel:"ipa-ignore-bootloader-failure" unsigned:"none" help:"continue if the boot loader cannot be installed"`
	InjectFilesPriority         int           `file:"inject_files_priority" kernel:"ipa-inject-files-priority" min:"0" max:"99" default:"0" unsigned:"none" help:"priority of the deploy and service step inject_files"`
	GuardSpecialFilesystems     bool          `file:"guard-special-filesystems" kernel:"ipa-guard-special-filesystems" default:"true" unsigned:"none" help:"refuse to erase devices that contain a shared file system"`
	SkipStorageControllers      []string      `file:"skip_storage_controllers" kernel:"ipa-skip-storage-controllers" unsigned:"none" help:"PCI addresses of storage controllers that erase steps do not examine, separated by commas, in addition to the addresses of skip_storage_controllers in driver_info of the node; another controller without a driver is an error if disks can be behind it"`
	EraseNetworkDisks           bool          `file:"erase_network_disks" kernel:"ipa-erase-network-disks" default:"false" unsigned:"none" help:"let erase steps, burnin_disk and RAID steps overwrite disks that are reached over a network, such as iSCSI, Fibre Channel and NVMe over Fabrics; otherwise these steps leave such disks untouched and name them"`
	EnableDiscardErase          bool          `file:"enable_discard_erase" kernel:"ipa-enable-discard-erase" default:"false" unsigned:"none" help:"discard SATA and SCSI disks whose own erase failed, before agent_continue_if_secure_erase_failed applies; every byte must read as zero afterwards; agent_enable_discard_erase in driver_internal_info of the node overrides it"`
	EraseEvidenceKey            string        `file:"erase_evidence_key" kernel:"ipa-erase-evidence-key" check:"file" unsigned:"media" help:"file with the Ed25519 key that signs the evidence of erases, PEM, readable by its owner only; not set, the evidence is unsigned"`
	EraseEvidenceURL            string        `file:"erase_evidence_url" kernel:"ipa-erase-evidence-url" unsigned:"none" help:"URL to which the evidence of each erased disk is posted; not set, it is not posted"`
	MD5Enabled                  bool          `file:"md5_enabled" default:"false" unsigned:"none" help:"accept MD5 checksums of images and firmware; Ironic sends its own value"`
	HTTPRequestTimeout          time.Duration `file:"http_request_timeout" kernel:"ipa-http-request-timeout" unit:"s" min:"1" default:"30" unsigned:"media" help:"time limit of a request to Ironic"`
	ProgressInterval            time.Duration `file:"progress_interval" kernel:"ipa-progress-interval" unit:"s" min:"0" default:"60" unsigned:"media" help:"shortest time between two heartbeats while only the progress of a command changes; 0 sends progress only with the heartbeats that Ironic requires"`
	ConfigDriveRebuild          bool          `file:"config_drive_rebuild" default:"false" unsigned:"none" help:"always rewrite the config drive as a new FAT file system"`
	DisableDeepImageInspection  bool          `file:"disable_deep_image_inspection" default:"false" unsigned:"none" help:"do not inspect images before they are used"`
	PermittedImageFormats       []string      `file:"permitted_image_formats" default:"raw,gpt,qcow2" unsigned:"none" help:"image formats that may be deployed; an empty list permits none"`
	DisableBootcDeploy          bool          `file:"disable_bootc_deploy" default:"false" unsigned:"none" help:"refuse to deploy bootable containers"`
	EnableBIOSBootloaderInstall bool          `file:"enable_bios_bootloader_install" default:"false" unsigned:"none" help:"run the image's own GRUB to install it: in legacy BIOS mode, and in UEFI mode if the image brings no boot loader for the EFI system partition"`

	Debug        bool   `file:"debug" kernel:"ipa-debug" default:"false" unsigned:"media,mdns" heading:"General" help:"log debug messages; the kernel parameter overrides every other source"`
	LogFile      string `file:"log_file" check:"file" unsigned:"none" help:"file to include in the collected logs"`
	SyslogServer string `file:"syslog_server" kernel:"ipa-syslog-server" check:"syslog" unsigned:"none" help:"server to which the log is sent: udp://HOST:PORT, tcp://HOST:PORT or tls://HOST:PORT (default ports 514, 601 and 6514); not set, it is not sent"`
	LogDir       string `file:"log_dir" check:"file" unsigned:"none" help:"directory whose files, also in subdirectories, are included in the collected logs"`

	Standalone  bool `file:"standalone" kernel:"ipa-standalone" default:"false" unsigned:"none" help:"serve the API and send nothing to Ironic"`
	Destructive bool `file:"destructive" source:"flag" default:"false" unsigned:"none" help:"outside the ramdisk: allow writing to disks, changing the network and stopping the machine"`

	DiskUtils       DiskUtils       `group:"disk_utils"`
	DiskPartitioner DiskPartitioner `group:"disk_partitioner"`
	Metrics         Metrics         `group:"metrics"`
	MetricsStatsd   MetricsStatsd   `group:"metrics_statsd"`
	MDNS            MDNS            `group:"mdns"`
	Container       Container       `group:"container"`

	// Params are all kernel and virtual media parameters, known to this package or not.
	Params Params
	// Signed reports whether the firmware has verified the whole image, its command line included. Other sources are
	// then restricted: see Source.
	Signed bool
	// TokenUnverified reports whether AgentToken comes from an unsigned source. It authorizes no command before Ironic
	// has accepted it.
	TokenUnverified bool

	fromImage map[string]bool // full names of options that a signed image sets itself
	ignored   []Unused        // settings of unsigned sources, and references to options
}

// DiskUtils is the group disk_utils.
type DiskUtils struct {
	EFISystemPartitionSize     int64  `file:"efi_system_partition_size" unit:"MiB" default:"550" unsigned:"none" help:"size of a new EFI system partition"`
	BIOSBootPartitionSize      int64  `file:"bios_boot_partition_size" unit:"MiB" default:"1" unsigned:"none" help:"size of a new BIOS boot partition"`
	DDBlockSize                string `file:"dd_block_size" default:"1M" unsigned:"none" help:"block size of the image writer" unused:"the writer chooses its block size"`
	PartitionDetectionAttempts int    `file:"partition_detection_attempts" min:"1" default:"3" unsigned:"none" help:"seconds to wait for a new partition"`
	PartprobeAttempts          int    `file:"partprobe_attempts" default:"10" unsigned:"none" help:"number of attempts to read a partition table again" unused:"not implemented yet"`
	ImageConvertMemoryLimit    int64  `file:"image_convert_memory_limit" unit:"MiB" default:"2048" unsigned:"none" help:"memory limit of an image conversion" unused:"images are converted in constant memory"`
	ImageConvertAttempts       int    `file:"image_convert_attempts" default:"3" unsigned:"none" help:"number of attempts to convert an image" unused:"images are converted in constant memory"`
}

// DiskPartitioner is the group disk_partitioner.
type DiskPartitioner struct {
	CheckDeviceInterval   time.Duration `file:"check_device_interval" unit:"s" default:"1" unsigned:"none" help:"pause between two checks whether a disk is in use, before it is erased or partitioned"`
	CheckDeviceMaxRetries int           `file:"check_device_max_retries" default:"20" unsigned:"none" help:"number of checks, after the first, before a disk that is in use is an error"`
}

// Metrics is the group metrics.
type Metrics struct {
	Backend            string `file:"backend" choices:"noop,statsd,collector" default:"noop" unsigned:"none" help:"destination of metrics; collector discards them"`
	PrependHost        bool   `file:"prepend_host" default:"false" unsigned:"none" help:"prefix metric names with the host name"`
	PrependHostReverse bool   `file:"prepend_host_reverse" default:"true" unsigned:"none" help:"reverse the parts of the host name in that prefix"`
	GlobalPrefix       string `file:"global_prefix" unsigned:"none" help:"prefix of all metric names"`
}

// MetricsStatsd is the group metrics_statsd.
type MetricsStatsd struct {
	StatsdHost string `file:"statsd_host" check:"host" default:"localhost" unsigned:"none" help:"host of the statsd server"`
	StatsdPort int    `file:"statsd_port" type:"port" default:"8125" unsigned:"none" help:"port of the statsd server"`
}

// MDNS is the group mdns.
type MDNS struct {
	UseMDNS          bool              `file:"use_mdns" kernel:"ipa-use-mdns" default:"false" unsigned:"none" help:"discover Ironic by multicast DNS if no URL is set"`
	AllowedOverrides []string          `file:"allowed_overrides" default:"inspection_callback_url,ntp_server" unsigned:"none" help:"options that a multicast DNS answer can set"`
	LookupAttempts   int               `file:"lookup_attempts" min:"1" default:"3" unsigned:"none" help:"number of attempts to discover Ironic"`
	Params           map[string]string `file:"params" default:"" unsigned:"none" help:"parameters of the announced service" unused:"the agent announces no service"`
	Interfaces       []string          `file:"interfaces" unsigned:"none" help:"addresses of the interfaces to use for multicast DNS; not set, all interfaces"`
}

// Container is the group container.
type Container struct {
	AllowArbitraryContainers bool          `file:"allow_arbitrary_containers" default:"false" unsigned:"none" help:"allow steps to run any container image, with any supported option"`
	AllowedContainers        []string      `file:"allowed_containers" default:"" unsigned:"none" help:"container images that steps may run, each as the step names it, with the options configured here"`
	ContainerStepsFile       string        `file:"container_steps_file" default:"/etc/ironic-python-agent.d/mysteps.yaml" check:"file" unsigned:"none" help:"YAML file with further steps, each of which runs a container image"`
	Runner                   string        `file:"runner" choices:"podman,docker" default:"podman" unsigned:"none" help:"program to run containers" unused:"the ramdisk runs containers without podman and docker"`
	PullOptions              []string      `file:"pull_options" default:"" unsigned:"none" help:"options of podman pull for steps without their own: --tls-verify, --retry, --retry-delay, --quiet; any other fails the step"`
	RunOptions               []string      `file:"run_options" default:"--rm,--network=host" unsigned:"none" help:"options of podman run for steps without their own: --privileged, --device, --volume or --mount of /dev:/dev or of a directory below /lib/modules, /lib/firmware or /run/udev with :ro, --env, --entrypoint, --user, --workdir, --network host or none, --pid private, --security-opt label=disable, --rm, --pull, --quiet, --tls-verify; any other fails the step, or the list of steps if one of the file has it"`
	MaxDuration              time.Duration `file:"max_duration" unit:"s" min:"0" default:"0" unsigned:"none" help:"time limit of a program in a container, bootc included; 0 sets none"`
}
