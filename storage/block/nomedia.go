package block

// Descriptions of PCI functions without media.
const (
	ideRedirection = "IDE redirection of the management engine, which shows images of a remote console"
	pcieSwitch     = "management function of a PCI Express switch"
	virtioFS       = "virtio-fs, a shared directory of the host"
)

// functionsWithoutMedia has the PCI IDs of functions that are of class IDE (0101h) or other mass storage (0180h) and
// that never have media of this machine. Each entry was reviewed: a wrong one lets an erase succeed with data left. The
// names come from the PCI ID Repository (pci-ids.ucw.cz). 1000:c010 is in two servers of
// testdata/servers/controllers.txt.
var functionsWithoutMedia = map[string]string{
	"8086:02e2": ideRedirection,
	"8086:06e2": ideRedirection,
	"8086:1084": ideRedirection,
	"8086:1c3c": ideRedirection,
	"8086:1d3c": ideRedirection,
	"8086:1e3c": ideRedirection,
	"8086:2976": ideRedirection,
	"8086:2996": ideRedirection,
	"8086:29a6": ideRedirection,
	"8086:29b6": ideRedirection,
	"8086:29c6": ideRedirection,
	"8086:29d6": ideRedirection,
	"8086:29e6": ideRedirection,
	"8086:29f6": ideRedirection,
	"8086:2a06": ideRedirection,
	"8086:2a16": ideRedirection,
	"8086:2a46": ideRedirection,
	"8086:2a52": ideRedirection,
	"8086:2e06": ideRedirection,
	"8086:2e16": ideRedirection,
	"8086:2e26": ideRedirection,
	"8086:2e36": ideRedirection,
	"8086:2e46": ideRedirection,
	"8086:2e96": ideRedirection,
	"8086:3b66": ideRedirection,
	"8086:43e2": ideRedirection,
	"8086:7772": ideRedirection,
	"8086:7a6a": ideRedirection,
	"8086:7aea": ideRedirection,
	"8086:7f6a": ideRedirection,
	"8086:8c3c": ideRedirection,
	"8086:8cbc": ideRedirection,
	"8086:8d3c": ideRedirection,
	"8086:9c3c": ideRedirection,
	"8086:9cbc": ideRedirection,
	"8086:a0e2": ideRedirection,
	"8086:a13c": ideRedirection,
	"8086:a1bc": ideRedirection,
	"8086:a1fa": ideRedirection,
	"8086:a23c": ideRedirection,
	"8086:a27a": ideRedirection,
	"8086:a2bc": ideRedirection,
	"8086:a362": ideRedirection,
	"8086:a3bc": ideRedirection,
	"8086:a872": ideRedirection,
	"8086:e372": ideRedirection,
	"8086:e472": ideRedirection,

	"1000:c010": pcieSwitch, // PEX880xx
	"1000:c012": pcieSwitch, // PEX880xx
	"1000:c030": pcieSwitch, // PEX890xx
	"1000:c034": pcieSwitch, // PEX890xx

	"1af4:105a": virtioFS,
}
