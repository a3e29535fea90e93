"""A partner that uses the library tooz: python3 partner.py URL GROUP MEMBER SECONDS

It pairs by the procedure of ironic-python-agent. It prints "joined", and then its role and its partner.
"""
import sys
import time

from tooz import coordination

url, group, member, seconds = sys.argv[1:]
coordinator = coordination.get_coordinator(url, member.encode())
coordinator.start(start_heart=True)
if group.encode() not in coordinator.get_groups().get():
    coordinator.create_group(group.encode())


def members():
    return {name.decode() for name in coordinator.get_members(group.encode()).get()}


lock = coordinator.get_lock(b"group_lock")
with lock:
    before = members()
    coordinator.join_group(group.encode()).get()
    print("joined", flush=True)
    if not before:
        lock.release()
        end = time.time() + float(seconds)
        while len(members()) < 2:
            if time.time() > end:
                coordinator.leave_group(group.encode()).get()
                sys.exit("no partner")
            time.sleep(0.1)
        partner = (members() - {member}).pop()
        role = "writer"
        coordinator.leave_group(group.encode()).get()
    else:
        partner = (before - {member}).pop()
        role = "reader"
        while partner in members():
            time.sleep(0.1)
        coordinator.leave_group(group.encode()).get()
        lock.release()
print(role, partner, flush=True)
coordinator.stop()
