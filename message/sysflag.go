package message

// System flag bits of a stored message; they go over the wire and to disk as they are.
const (
	FlagCompressed      int32 = 0x1
	FlagMultiTags       int32 = 0x2
	FlagTransactionMask int32 = 0xC
	FlagPrepared        int32 = 0x4
	FlagCommit          int32 = 0x8
	FlagRollback        int32 = 0xC
	FlagBornHostV6      int32 = 0x10
	FlagStoreHostV6     int32 = 0x20
	FlagNeedUnwrap      int32 = 0x40 // the body is a batch that the client unwraps
	FlagInnerBatch      int32 = 0x80
	FlagCompressionMask int32 = 0x700
	FlagLZ4             int32 = 0x100
	FlagZstd            int32 = 0x200
	FlagZlib            int32 = 0x300 // 0 means zlib too: what clients before 5.0 send
)
