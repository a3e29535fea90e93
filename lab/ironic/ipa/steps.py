"""Hardware manager for ironic-python-agent with the steps of the command stepmanager, as its counterpart in tests."""
import pathlib
import urllib.parse
import urllib.request

from ironic_python_agent import hardware

REPORT_URL = '@REPORT_URL@'
BOOT_ID = pathlib.Path('/proc/sys/kernel/random/boot_id')


class StepManager(hardware.HardwareManager):
    HARDWARE_MANAGER_NAME = 'lab_steps'
    HARDWARE_MANAGER_VERSION = 'ipa'

    def evaluate_hardware_support(self):
        return hardware.HardwareSupport.SERVICE_PROVIDER

    def get_clean_steps(self, node, ports):
        return [{
            'interface': 'deploy', 'step': name, 'priority': priority, 'reboot_requested': reboot, 'abortable': True,
        } for name, priority, reboot in (('restart', 50, True), ('report', 40, False))]

    def restart(self, node, ports):
        self._send('restart')

    def report(self, node, ports):
        self._send('report')

    def _send(self, step):
        form = {'step': step, 'note': '', 'version': self.HARDWARE_MANAGER_VERSION,
                'boot': BOOT_ID.read_text().strip()}
        urllib.request.urlopen(REPORT_URL, urllib.parse.urlencode(form).encode(), timeout=60).close()
