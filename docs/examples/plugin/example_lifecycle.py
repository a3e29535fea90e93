"""An example of a hardware manager plug-in of ironic-python-agent. It knows nothing of ironroot."""

import time

from oslo_log import log

from ironic_python_agent import errors
from ironic_python_agent import hardware
from ironic_python_agent import utils

LOG = log.getLogger(__name__)


class LifecycleHardwareManager(hardware.HardwareManager):
    """Checks that a machine is not older than it may be, and records its devices."""

    HARDWARE_MANAGER_NAME = 'LifecycleHardwareManager'
    HARDWARE_MANAGER_VERSION = '1.2'

    def evaluate_hardware_support(self):
        return hardware.HardwareSupport.SERVICE_PROVIDER

    def get_clean_steps(self, node, ports):
        return [{
            'step': 'verify_lifecycle',
            'priority': 91,
            'interface': 'deploy',
            'reboot_requested': False,
            'abortable': True,
        }]

    def get_deploy_steps(self, node, ports):
        return [{
            'step': 'record_devices',
            'priority': 0,
            'interface': 'deploy',
            'reboot_requested': False,
            'argsinfo': {
                'device_class': {
                    'description': 'Class of PCI devices to record, such as 0200.',
                    'required': True,
                },
            },
        }]

    def verify_lifecycle(self, node, ports):
        """Fails for a node that was created more than three years ago."""
        created = node.get('created_at')
        if created is None:
            raise errors.CleaningError('node %s has no time of creation' % node['uuid'])
        age = time.time() - time.mktime(time.strptime(created, '%Y-%m-%dT%H:%M:%SZ'))
        if age > 3 * 365 * 24 * 3600:
            raise errors.CleaningError('node %s is too old' % node['uuid'])
        LOG.info('node %s has %d ports and is young enough', node['uuid'], len(ports))
        return {'age': int(age)}

    def record_devices(self, node, ports, device_class):
        """Returns the PCI devices of a class."""
        print('this line is no message of the protocol')
        out, _ = utils.execute('lspci', '-n', '-d', '::' + device_class)
        return out.splitlines()
