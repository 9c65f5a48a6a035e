package informer

// net reduces the changes of a key to their net effect, in place. The result is one of
//
//	[Deleted]             the object is gone
//	[other]               the object exists, in its newest state
//	[Deleted, other]      the object went, and another one of the same key exists
//
// A Deleted stays in front of the object that follows it, so that nobody takes the new object for
// the old one. Objects that came and went in between are left out.
func net[T any](changes []Delta[T]) []Delta[T] {
	kept := changes[:0]
	for _, d := range changes {
		n := len(kept)
		switch {
		case n == 0:
			kept = append(kept, d)
		case d.Type != Deleted && kept[n-1].Type == Deleted:
			kept = append(kept, d)
		case d.Type != Deleted:
			kept[n-1] = join(kept[n-1], d)
		case n == 2:
			kept = kept[:1]
		case kept[0].Type != Deleted || kept[0].Tombstone:
			kept[0] = d
		}
	}
	return kept
}

// join makes one change of two after which the object exists. It has the newest state. Its type is
// the older one's, because the first change tells how the object came; a Sync tells nothing.
func join[T any](older, newer Delta[T]) Delta[T] {
	if older.Type != Sync {
		newer.Type = older.Type
	}
	return newer
}
