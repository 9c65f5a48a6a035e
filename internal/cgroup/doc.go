// Package cgroup limits processes with Linux control groups, v1, v2 or both at once, behind one
// typed interface. internal/executor starts tasks with it, internal/sample measures them.
//
//	h, err := cgroup.Detect(cgroup.DefaultRoot)
//	tree, err := h.Subtree("plimsoll/node-1")
//	group, err := tree.Create("task-7", cgroup.Limits{CPUMilli: 500, MemoryBytes: 1 << 30})
//	err = group.Add(pid)
//	err = errors.Join(group.Kill(ctx), group.Remove(ctx))
//
// Detect finds the mounted and writable hierarchies, or says in words why there are none.
// Hierarchy.Subtree makes a directory in every hierarchy and turns the controllers on down to it.
// Subtree.Create makes a Group with limits on processor time, memory and processes.
// Subtree.LimitMemory bounds the memory of all groups of a subtree together.
//
// A Group takes processes, reads its limits, usage and out-of-memory kills back, kills all its
// processes, and is removed. Group.Control opens a running group for changes: quota, weight, burst,
// freezing, reclaiming memory, pressure. Group.Reader keeps its counters open for reading them
// every second.
//
// A machine has one hierarchy per controller (v1), one for all controllers (v2), or v1 hierarchies
// and a v2 one without controllers (hybrid). A group is a directory of the same name in each
// hierarchy, and a process is put in all of them. With v2 a process can be born in its group
// (Group.FD), and the kernel kills the whole group in one step. With v1 the group is frozen, every
// process gets SIGKILL, and the group is thawed, until it is empty: a fork bomb cannot outrun the
// kill.
//
// The package owns the directories of its subtree. It starts no process and keeps no state besides
// paths. Outside the subtree it only turns controllers on, in the directories above it (v2). A task
// that runs as root can leave its group.
//
// Kill, Remove, Freeze and Reclaim wait, at most until their context ends. The other calls are a
// few reads and writes of kernel files. A Control has one goroutine while Reclaim is under way,
// because the kernel cannot always be interrupted. Trigger.Wait blocks a thread. A group costs one
// directory per hierarchy, and the descriptors of its Control and Reader. Values are safe for
// concurrent use, except that Reader and Trigger take one caller at a time. A limit without a
// controller is left out; Hierarchy.Missing names such limits.
//
// The design follows the kernel's documents cgroup-v1 and cgroup-v2.
package cgroup
