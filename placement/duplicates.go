package placement

import (
	"fmt"
	"slices"

	"github.com/plimsoll-dev/plimsoll"
)

// arrive notes where an instance is that came with a server. One without an id, or with the id of
// another, gets a key of its own; f.twins knows the second kind.
func (f *Fleet) arrive(id string, n int, at place) {
	key := id
	if _, taken := f.inside[id]; taken || id == "" {
		key, at.twin = fmt.Sprintf("%d\x00%d", at.slot, n), id
	}
	if at.twin != "" {
		if f.twins == nil {
			f.twins = map[string][]string{}
		}
		f.twins[id] = append(f.twins[id], key)
	}
	f.inside[key] = at
	f.brought[at.slot] = append(f.brought[at.slot], key)
}

// depart forgets where such an instance was. If another one has its id, that is the one from now
// on.
func (f *Fleet) depart(key string) {
	p := f.inside[key]
	delete(f.inside, key)
	switch twins := f.twins[key]; {
	case p.twin != "":
		f.dropTwin(p.twin, key)
	case len(twins) > 0:
		next := twins[0]
		f.dropTwin(key, next)
		at := f.inside[next]
		delete(f.inside, next)
		at.twin = ""
		f.inside[key] = at
		list := f.brought[at.slot]
		list[slices.Index(list, next)] = key
	}
}

func (f *Fleet) dropTwin(id, key string) {
	list := f.twins[id]
	list = slices.Delete(list, slices.Index(list, key), slices.Index(list, key)+1)
	if f.twins[id] = list; len(list) == 0 {
		delete(f.twins, id)
	}
}

// alone returns an error if instances of one id are on two servers: it is not known then which of
// them is meant.
func (f *Fleet) alone(id string) error {
	for _, key := range f.twins[id] {
		if a, b := f.inside[id].slot, f.inside[key].slot; a != b {
			return fmt.Errorf("instance %s is on two servers, %s and %s; give each instance an id of its own",
				id, f.ids[a], f.ids[b])
		}
	}
	return nil
}

// checkVolumes refuses a request for the volumes of an instance that is on two servers.
func (f *Fleet) checkVolumes(ids []string) error {
	if f.Loader.Volumes != nil {
		return nil // it knows one server of each
	}
	for i, id := range ids {
		if err := f.alone(id); err != nil {
			return plimsoll.Invalid(fmt.Sprintf("constraints.volumesFrom[%d]", i), "%s", err)
		}
	}
	return nil
}
