module raygo

go 1.25
