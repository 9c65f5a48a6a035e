package placement

import (
	"fmt"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
)

// arrive notes the place of an instance of a server's record. An instance without an id, or with an
// id that another one has, gets a key of its own. f.duplicates lists the keys of the second kind.
func (f *Fleet) arrive(id string, n int, at place) {
	key := id
	if _, taken := f.instances[id]; taken || id == "" {
		key, at.duplicateOf = fmt.Sprintf("%d\x00%d", at.slot, n), id
	}
	if at.duplicateOf != "" {
		if f.duplicates == nil {
			f.duplicates = map[string][]string{}
		}
		f.duplicates[id] = append(f.duplicates[id], key)
	}
	f.instances[key] = at
	f.instancesOn[at.slot] = append(f.instancesOn[at.slot], key)
}

// depart forgets the place of an instance. If another instance has the same id, that one takes its
// key.
func (f *Fleet) depart(key string) {
	p := f.instances[key]
	delete(f.instances, key)
	switch others := f.duplicates[key]; {
	case p.duplicateOf != "":
		f.dropDuplicate(p.duplicateOf, key)
	case len(others) > 0:
		next := others[0]
		f.dropDuplicate(key, next)
		at := f.instances[next]
		delete(f.instances, next)
		at.duplicateOf = ""
		f.instances[key] = at
		list := f.instancesOn[at.slot]
		list[slices.Index(list, next)] = key
	}
}

func (f *Fleet) dropDuplicate(id, key string) {
	list := f.duplicates[id]
	list = slices.Delete(list, slices.Index(list, key), slices.Index(list, key)+1)
	if f.duplicates[id] = list; len(list) == 0 {
		delete(f.duplicates, id)
	}
}

// onOneServer returns an error if instances with one id are on two servers, because a request could
// mean either.
func (f *Fleet) onOneServer(id string) error {
	for _, key := range f.duplicates[id] {
		if a, b := f.instances[id].slot, f.instances[key].slot; a != b {
			return fmt.Errorf("instance %s is on two servers, %s and %s; give each instance an id of its own",
				id, f.ids[a], f.ids[b])
		}
	}
	return nil
}

// checkVolumes refuses a request for the volumes of an instance that is on two servers.
func (f *Fleet) checkVolumes(ids []string) error {
	if f.Loader.Volumes != nil {
		return nil // the loader knows one server of each
	}
	for i, id := range ids {
		if err := f.onOneServer(id); err != nil {
			return plimsoll.Invalid(fmt.Sprintf("constraints.volumesFrom[%d]", i), "%s", err)
		}
	}
	return nil
}
