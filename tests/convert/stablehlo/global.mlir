module @jit_g attributes {mhlo.num_partitions = 4 : i32, mhlo.num_replicas = 1 : i32} {
  sdy.mesh @mesh = <["dp"=2, "tp"=2]> {stablehlo.mesh = {axes = [{name = "dp", size = 2 : i64}, {name = "tp", size = 2 : i64}]}}
  func.func public @main(%arg0: tensor<64x128xf32> {sdy.sharding = #sdy.sharding<@mesh, [{}, {"tp"}]>}, %arg1: tensor<128x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"tp"}, {}]>}, %arg2: tensor<32x64xf32> {sdy.sharding = #sdy.sharding<@mesh, [{"dp"}, {}]>}) -> (tensor<64x128xf32> {jax.result_info = "result[0]"}, tensor<128x64xf32> {jax.result_info = "result[1]"}) {
    %0 = stablehlo.dot_general %arg2, %arg0, contracting_dims = [1] x [0], precision = [DEFAULT, DEFAULT] : (tensor<32x64xf32>, tensor<64x128xf32>) -> tensor<32x128xf32>
    %1 = stablehlo.multiply %0, %0 : tensor<32x128xf32>
    %2 = stablehlo.multiply %1, %0 : tensor<32x128xf32>
    %3 = stablehlo.multiply %0, %0 : tensor<32x128xf32>
    %cst = stablehlo.constant dense<3.000000e+00> : tensor<f32>
    %4 = stablehlo.broadcast_in_dim %cst, dims = [] : (tensor<f32>) -> tensor<32x128xf32>
    %5 = stablehlo.multiply %4, %3 : tensor<32x128xf32>
    %cst_0 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %6 = stablehlo.broadcast_in_dim %cst_0, dims = [] : (tensor<f32>) -> tensor<32x128xf32>
    %7 = stablehlo.multiply %6, %2 : tensor<32x128xf32>
    %8 = stablehlo.add %0, %7 : tensor<32x128xf32>
    %cst_1 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %9 = stablehlo.broadcast_in_dim %cst_1, dims = [] : (tensor<f32>) -> tensor<32x128xf32>
    %10 = stablehlo.multiply %9, %8 : tensor<32x128xf32>
    %11 = stablehlo.tanh %10 : tensor<32x128xf32>
    %cst_2 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %12 = stablehlo.broadcast_in_dim %cst_2, dims = [] : (tensor<f32>) -> tensor<32x128xf32>
    %13 = stablehlo.subtract %12, %11 : tensor<32x128xf32>
    %cst_3 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %14 = stablehlo.broadcast_in_dim %cst_3, dims = [] : (tensor<f32>) -> tensor<32x128xf32>
    %15 = stablehlo.add %14, %11 : tensor<32x128xf32>
    %cst_4 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %16 = stablehlo.broadcast_in_dim %cst_4, dims = [] : (tensor<f32>) -> tensor<32x128xf32>
    %17 = stablehlo.multiply %16, %15 : tensor<32x128xf32>
    %18 = stablehlo.multiply %0, %17 : tensor<32x128xf32>
    %cst_5 = stablehlo.constant dense<1.000000e+00> : tensor<f32>
    %cst_6 = stablehlo.constant dense<2.048000e+03> : tensor<f32>
    %19 = stablehlo.divide %cst_5, %cst_6 : tensor<f32>
    %20 = stablehlo.broadcast_in_dim %19, dims = [] : (tensor<f32>) -> tensor<32x64xf32>
    %21 = stablehlo.dot_general %20, %18, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<32x64xf32>, tensor<32x128xf32>) -> tensor<64x128xf32>
    %22 = stablehlo.transpose %21, dims = [1, 0] : (tensor<64x128xf32>) -> tensor<128x64xf32>
    %23 = stablehlo.dot_general %20, %arg1, contracting_dims = [1] x [1], precision = [DEFAULT, DEFAULT] : (tensor<32x64xf32>, tensor<128x64xf32>) -> tensor<32x128xf32>
    %24 = stablehlo.multiply %0, %23 : tensor<32x128xf32>
    %25 = stablehlo.multiply %23, %17 : tensor<32x128xf32>
    %cst_7 = stablehlo.constant dense<5.000000e-01> : tensor<f32>
    %26 = stablehlo.broadcast_in_dim %cst_7, dims = [] : (tensor<f32>) -> tensor<32x128xf32>
    %27 = stablehlo.multiply %26, %24 : tensor<32x128xf32>
    %28 = stablehlo.multiply %27, %13 : tensor<32x128xf32>
    %29 = stablehlo.multiply %28, %11 : tensor<32x128xf32>
    %30 = stablehlo.add %28, %29 : tensor<32x128xf32>
    %cst_8 = stablehlo.constant dense<0.797884583> : tensor<f32>
    %31 = stablehlo.broadcast_in_dim %cst_8, dims = [] : (tensor<f32>) -> tensor<32x128xf32>
    %32 = stablehlo.multiply %31, %30 : tensor<32x128xf32>
    %33 = stablehlo.add %25, %32 : tensor<32x128xf32>
    %cst_9 = stablehlo.constant dense<4.471500e-02> : tensor<f32>
    %34 = stablehlo.broadcast_in_dim %cst_9, dims = [] : (tensor<f32>) -> tensor<32x128xf32>
    %35 = stablehlo.multiply %34, %32 : tensor<32x128xf32>
    %36 = stablehlo.multiply %35, %5 : tensor<32x128xf32>
    %37 = stablehlo.add %33, %36 : tensor<32x128xf32>
    %38 = stablehlo.dot_general %37, %arg2, contracting_dims = [0] x [0], precision = [DEFAULT, DEFAULT] : (tensor<32x128xf32>, tensor<32x64xf32>) -> tensor<128x64xf32>
    %39 = stablehlo.transpose %38, dims = [1, 0] : (tensor<128x64xf32>) -> tensor<64x128xf32>
    return %39, %22 : tensor<64x128xf32>, tensor<128x64xf32>
  }
}
