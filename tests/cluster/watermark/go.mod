module plimsoll.dev/tests/cluster/watermark

go 1.26.0

require github.com/DataDog/watermarkpodautoscaler v0.11.0
