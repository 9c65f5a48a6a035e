package placement

// tags interns the names by which requests select instances: owners, jobs, groups and labels. An id
// is used again once it has no references.
type tags struct {
	index map[string]uint32
	info  []tagInfo // by id; id 0 is no tag
	free  []uint32  // ids without references

	// base holds the tags of the instances that a fork began with, which are never forgotten. They
	// enter the index on their first use.
	base  []string // by id
	looks int      // tags that were searched one by one
}

type tagInfo struct {
	name     string
	refs     int
	version  uint64 // grows whenever an instance with the tag comes or goes
	counters []*counter
	hosts    bitmap // servers with instances of the owner; nil: watchers is 0
	watchers int    // prepared requests that use hosts
}

func newTags() tags { return tags{index: map[string]uint32{}, info: make([]tagInfo, 1)} }

// acquire returns the id of a name, which the caller releases.
func (t *tags) acquire(name string) uint32 {
	id := t.index[name]
	if id == 0 && len(t.base) > 0 {
		id = t.find(name)
	}
	if id == 0 {
		if k := len(t.free); k > 0 {
			id, t.free = t.free[k-1], t.free[:k-1]
		} else {
			id = uint32(len(t.info))
			t.info = append(t.info, tagInfo{})
		}
		t.index[name] = id
		t.info[id].name = name
	}
	t.info[id].refs++
	return id
}

func (t *tags) release(id uint32) {
	if id == 0 {
		return
	}
	info := &t.info[id]
	if info.refs--; info.refs == 0 {
		delete(t.index, info.name)
		info.name = ""
		t.free = append(t.free, id)
	}
}

// tally is how many instances of a server have a tag.
type tally struct{ tag, n uint32 }

func tallied(list []tally, tag uint32) uint32 {
	for i := range list {
		if list[i].tag == tag {
			return list[i].n
		}
	}
	return 0
}

func addTally(list []tally, tag uint32) []tally {
	for i := range list {
		if list[i].tag == tag {
			list[i].n++
			return list
		}
	}
	return append(list, tally{tag, 1})
}

func subTally(list []tally, tag uint32) []tally {
	for i := range list {
		if list[i].tag == tag {
			if list[i].n--; list[i].n == 0 {
				last := len(list) - 1
				list[i] = list[last]
				return list[:last]
			}
			return list
		}
	}
	return list
}
